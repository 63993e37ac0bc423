"""The dashboard's line to the aggregator: HTTP and one WebSocket, kept up whatever happens."""
