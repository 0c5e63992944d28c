-- The query of the README and of docs/architecture.md. Run it from the root of the project.
CREATE STREAM trades (sym VARCHAR, price DOUBLE, qty INT, ts TIMESTAMP)
  SOURCE file('docs/examples/trades/*.csv') ORDERED BY ts WITHIN 2 SECONDS;

CREATE STREAM volume AS
  SELECT sym, COUNT(*) AS trades, SUM(qty) AS shares
    FROM trades WINDOW(RANGE 10 MINUTES)
   WHERE price > 10
   GROUP BY sym;
