"""HTTP plumbing: headers, bodies, problems, paging, the contract."""
