-- Who registered and opened an auction within the same 10 seconds?
--
-- As q5: the answer about a window is valid until the window jumps again.
CREATE STREAM person SOURCE nexmark('person', events => 100000, rate => 1000);
CREATE STREAM auction SOURCE nexmark('auction', events => 100000, rate => 1000);

SELECT DISTINCT p.id, p.name
  FROM person WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) AS p
  JOIN auction WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) AS a ON p.id = a.seller;
