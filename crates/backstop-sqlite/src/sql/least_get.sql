SELECT value FROM backstop_meta WHERE key = 'least'
