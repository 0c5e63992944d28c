-- The judge read valid_from of a temporal table as a column: the rows below a window function had a reserved name.
CREATE STREAM s (k INT, v INT, ts BIGINT) SOURCE rows((1, 5, 0), (2, 3, 1), (1, 4, 2), (2, 8, 9), (1, 1, 20)) ORDERED BY ts;
CREATE TABLE p (k INT, w INT, valid_from BIGINT, valid_until BIGINT) VALID FROM valid_from UNTIL valid_until;
INSERT INTO p VALUES (1, 7, 5, NULL), (1, 8, 0, 6), (2, 9, 0, 5), (1, 6, 6, 7);
SELECT s.v, p.w, COUNT(*) OVER () AS n FROM s JOIN p ON s.k = p.k;
SELECT *, RANK() OVER (ORDER BY p.w) AS place FROM s JOIN p ON s.k = p.k;
