"""The service: masking on request, on the agency's own network, with policy enforced in one place.

A server answers people and programs over HTTP, worker processes run the long jobs, and one database holds accounts,
permissions, the job queue and the audit log. Data files live in their own directories; the master key lives outside
both.
"""
