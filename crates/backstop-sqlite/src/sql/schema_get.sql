SELECT version FROM backstop_schema
