#!/bin/sh
# A request to the function, at a node's usual address.
exec curl -sSi "http://${FAASW_ADDRESS:-127.0.0.1:8080}/NAME/?name=world"
