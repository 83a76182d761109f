"""What the blocks of a grid tell each other in a call of grid scope: a row in device memory.

All threads of all blocks make the call. Block 0, the *leader*, carries it out by the code of the
block scope. The other blocks wait for its *commands*: jobs, which all blocks do together, and at
last the result, which all of them return. Before the first command, and before each one after a
job, the leader waits until all others have *arrived*. So a command is not written before everybody
has read the last one, and what any thread has stored before the call, or in a job, is visible to
the leader, and by the next command to all.

A command is WORDS packets: 8 bytes, and the number of the command. Nothing is cleared between
calls or launches: who arrives has read the number of the last command before, and waits for the
next one. Only the leader looks at host memory all the time. The others do so now and then.

Where waits are aborted before all blocks have come to a call, the grid has *given up*: who sees the
abort says so, the leader, or, where it has not come, any other block. From then on there are no
commands, and each call ends with the abort's error class in each block. Otherwise a job could wait
for blocks that have left.
"""

COMMAND = 0
WORDS = 7  # the kind, and what it is about
# How many of the other blocks wait for the next command, and of how many of these the part of a job
# has ended with an abort << FAILED_SHIFT.
ARRIVED = 128
FAILED_SHIFT = 32
ENTERED = 256  # number of the first command of the call that the leader is in, or GAVE_UP
GAVE_UP = 1 << 62
TELLER = 264  # 1: a block reports that the leader is missing

# Kinds.
RESULT = 0  # of the call: six words
# What the leader also moves its part of:
PUSH = 1  # bytes of a send, to where the receiver has said: slot, where to, buffer, begin, bytes
TAKE = 2  # bytes of a receive from staging: slot, staging, buffer, begin, end
COLLECT = 3  # a step of a long collective: word of the call, step and slot, buffer, begin, bytes
# A long collective at once (``pipelines.py``): word of the call, what goes out and where to
# (``device_lib/direct/places.py``), bytes, number of the opening and pipelines.
TRANSFER = 4
# Bytes of a send, to the user's buffer on another rank: where to, buffer, bytes. The other blocks
# move them alone, while the leader waits.
STRAIGHT = 5
