"""The connection to the aggregator: HTTP and one WebSocket, which reconnect after every fault."""
