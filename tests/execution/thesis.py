"""The example streams of the thesis, chapters 8 and 11, as time lines."""

from __future__ import annotations

# Table 11.1: two physical streams.
S1 = "c[1,8) a[5,11) d[6,14) a[9,10) b[12,17)"
S2 = "b[1,7) d[3,9) a[4,5) b[7,15) e[10,18)"

# Table 11.11(a): a chronon stream.
S3 = "b[1,2) a[3,4) c[4,5) a[7,8) b[10,11)"

# Table 8.1(a): what is valid at each instant of a logical stream.
LOGICAL_S1 = {1: "c", 2: "aaa", 3: "aaab", 4: "aaabc", 5: "bb", 6: "bb"}
