-- Who sells in Oregon, Idaho or California, and has an auction of category 10?
--
-- Elsewhere the answer is a table that only grows, and what is written are its new rows. That is ISTREAM of the answer
-- here; without it a row would be valid for ever from the instant on at which both the person and the auction are there.
-- Either may come first.
CREATE STREAM person SOURCE nexmark('person', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000);

ISTREAM(
  SELECT p.name, p.city, p.state, a.id
    FROM auction WINDOW(RANGE UNBOUNDED) AS a
    JOIN person WINDOW(RANGE UNBOUNDED) AS p ON a.seller = p.id
   WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
);
