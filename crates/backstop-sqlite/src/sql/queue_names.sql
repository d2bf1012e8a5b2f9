SELECT id, name, done FROM backstop_queue ORDER BY name
