"""The frozen values that every room speaks: messages, blocks, requests, ledger entries, profiles, tool definitions."""
