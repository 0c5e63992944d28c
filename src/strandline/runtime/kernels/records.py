"""Record boundaries of a CSV file with quotes: a quoted field may contain line breaks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strandline.runtime.kernels.batch import Index
from strandline.runtime.kernels.compiled import compiled

SOUND, UNCLOSED, OVERLONG = 0, 1, 2

# Compiled, because the meaning of a byte depends on the one before it.


@compiled("Tuple((i8[::1], u1[::1]))(u1[::1], i8, i8, i8, b1)")
def quoted_records(
    data: npt.NDArray[np.uint8], delimiter: int, longest_line: int, quoted_span: int, final: bool
) -> tuple[Index, npt.NDArray[np.uint8]]:
    """Ends of the records, line breaks included, and the error of each.

    A field whose first character is a quote continues to the next quote that is not doubled, also over line breaks, as
    long as these lie within `quoted_span` bytes from the start of the record and a delimiter or a line break follows
    the quote. Where there is no such quote, the first line of the record is a record by itself, UNCLOSED, and reading
    continues with the line after it. A line with more than `longest_line` bytes is a record by itself, too. Without
    `final` more data may follow: what is not decided is left.
    """
    quote, line_feed, carriage_return = 34, 10, 13
    size = len(data)
    capacity = 1
    for byte in data:
        if byte in (line_feed, carriage_return):
            capacity += 1
    ends, flags = np.empty(capacity, np.int64), np.zeros(capacity, np.uint8)
    count = start = line = at = 0
    first_end = -1  # of the first line of a multi-line record
    state = 0  # 0 before a field, 1 in a field, 2 in quotes
    while True:
        give_up = False
        while at < size and not give_up:
            byte = data[at]
            if byte in (line_feed, carriage_return):
                after = at + 1
                if byte == carriage_return:
                    if after == size and not final:
                        break
                    if after < size and data[after] == line_feed:
                        after += 1
                overlong = at - line > longest_line
                if state == 2 and not overlong:
                    if first_end < 0:
                        first_end = after
                    if after - start > quoted_span:
                        give_up = True
                    else:
                        at = line = after
                elif overlong and line > start:
                    give_up = True
                else:
                    ends[count], flags[count] = after, OVERLONG if overlong else SOUND
                    count += 1
                    start = line = at = after
                    first_end, state = -1, 0
                continue
            if state == 2:
                if byte == quote:
                    if at + 1 == size and not final:
                        break
                    if at + 1 < size and data[at + 1] == quote:
                        at += 1
                    elif (
                        first_end >= 0 and at + 1 < size and data[at + 1] not in (delimiter, line_feed, carriage_return)
                    ):
                        give_up = True
                        continue
                    else:
                        state = 1
            elif byte == delimiter:
                state = 0
            elif state == 0:
                state = 2 if byte == quote else 1
            at += 1
        if not give_up:
            overlong = at - line > longest_line
            if line > start and (overlong or (final and state == 2)):
                give_up = True
            elif final and start < size:
                flag = OVERLONG if overlong else (UNCLOSED if state == 2 else SOUND)
                ends[count], flags[count] = size, flag
                count += 1
        if not give_up:
            break
        if first_end < 0:  # a line break at the very end of the data
            first_end = size
        ends[count], flags[count] = first_end, UNCLOSED
        count += 1
        start = line = at = first_end
        first_end, state = -1, 0
    return ends[:count].copy(), flags[:count].copy()
