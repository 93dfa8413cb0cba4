"""Values that the whole job shares: data, schema, specification, plan, audit, release. No input or output."""
