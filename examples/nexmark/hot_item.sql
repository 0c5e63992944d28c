-- Which items have the most bids of the last 10 seconds, at every instant?
--
-- The thesis looks at an hour. `>= ALL` compares every count with every other, so there are fewer events here than in the
-- other examples. ORDER BY num DESC LIMIT 1, as in q5, has the same answer and looks at each count once.
CREATE STREAM bid SOURCE nexmark('bid', events => 2000, rate => 100);

CREATE VIEW counts AS SELECT auction, COUNT(*) AS num FROM bid WINDOW(RANGE 10 SECONDS) GROUP BY auction;
SELECT auction, num FROM counts WHERE num >= ALL (SELECT num FROM counts);
