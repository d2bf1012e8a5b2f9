-- no parameters
SELECT detector, opened_ms, closed_ms FROM incident ORDER BY opened_ms, detector
