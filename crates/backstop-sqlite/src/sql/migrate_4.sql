-- Claims that expire are found one after the other, however many there are.
CREATE INDEX backstop_claim_until ON backstop_claim (until, number);
