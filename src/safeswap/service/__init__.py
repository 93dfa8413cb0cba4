"""The service: swapping on request, on the agency's own network, with the policy kept in one place.

A server answers people and programs over HTTP, workers beside it do what takes long, and one database holds who may do
what, what is to be done and what was done. The data lie in directories of their own, the key to the confidential
records outside both.
"""
