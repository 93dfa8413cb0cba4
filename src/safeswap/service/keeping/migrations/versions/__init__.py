"""The steps. A step that has been released is never changed: what comes later is another step.

``python -m safeswap.service.keeping.migrate`` prints what the next one has to do.
"""
