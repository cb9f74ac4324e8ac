def extras(found, shape, model): 
    found.text.value("mtp_layers")
    return {}, []
