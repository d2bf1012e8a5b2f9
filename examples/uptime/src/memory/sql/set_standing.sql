-- ?1 detector, ?2 standing
INSERT INTO standing (detector, standing) VALUES (?1, ?2)
ON CONFLICT (detector) DO UPDATE SET standing = excluded.standing
