"""What the blocks of a grid tell each other in a call of grid scope: a row in device memory.

All threads of all blocks make the call. Block 0, the *leader*, carries it out by the code of the
block scope. Calls are cut into *steps*, which all blocks count alike. Each block has a *word*: the
last step that it has come to, and how many blocks its launch has. Who comes to a step stores it
there, behind what its threads have stored before, and nobody ever waits to do so.

* A call that opens a request of the direct road is one step. The leader waits until all have come
  to it, opens the request, and enters its handle in a table. The others go on at once: they work
  out a handle *of the grid* from the number of the step, which stands for what is in the table. A
  message that a block sends or receives by itself waits until the leader has opened what came
  before it.
* Other calls end with a *command* of the leader, the result, which the others wait for. Before it
  there may be commands that are *jobs*, which all blocks do together. Each command is a step: who
  has done a job comes to the next one. A call begins when all have come to its first step. Only
  GMPI_Wait and GMPI_Test of a short message do not wait for that: opening has, and there are no
  jobs.

A command is WORDS packets: 8 bytes, and the number of its step. There are RING places for commands.
The leader writes one if all have come to the step after the one whose command lies there.

Nothing is cleared between calls or launches. But a block that was not in the last launch does not
know the step. So where a launch has another number of blocks than the last one, the blocks *meet*
before its first call: all others count up COME, and the leader says the last step in a packet with
the number of the meeting. It takes their words from blocks that are not there: so they meet again,
when they are there next.

Where waits are aborted before the leader has come to a call, the grid has *given up*: any other
block says so in ENTERED, or the leader, where it cannot go on. From then on there are no commands,
and each call ends with the abort's error class in each block.
"""

COMMANDS = 0
WORDS = 7  # the kind, and what it is about
RING = 8
COMMAND_BYTES = 128
MEETING = RING * COMMAND_BYTES  # packet: last step before it, number of the meeting
COME = MEETING + 16  # how many of the other blocks have come to it
ENTERED = MEETING + 128  # first step of the call that the leader is in; from GAVE_UP on: given up
GAVE_UP = 1 << 62
TELLER = ENTERED + 8  # 1: a block reports that the leader is missing
FAILED = ENTERED + 16  # 1: a block's part of a job has ended with an abort; for good
# The leader's own.
LAST = MEETING + 256  # what it has made of ENTERED; GAVE_UP, where it knows that
KNOWN = LAST + 8  # a step that all have come to
MOST = LAST + 16  # how many blocks have had words
CHECKED = LAST + 24  # up to this step the table has room
OLD_USED = LAST + 32  # places of OLD that have been used
# 16 bytes for each block: its word, step << STEP_SHIFT | blocks of the launch; and the step in
# which it has left opening a request to the leader. Calls of its own come after that.
WORDS_AT = 2048
WORD_BYTES = 16
LEFT = 8
STEP_SHIFT = 16
MOST_BLOCKS = 8192  # more are not resident on any GPU

# The table: packets, at number step % HANDLES: handle, or 0 where it is waited for no more; step.
# Before a place is used again, a handle that is still there goes to OLD, which is looked through.
HANDLES_AT = WORDS_AT + WORD_BYTES * MOST_BLOCKS
HANDLES = 1024
OLD_AT = HANDLES_AT + 16 * HANDLES
OLD = 8192
CHECKS = 64  # places are looked at together
STEP_IN_HANDLE = 8  # of a handle that is an error class: makes it unlike others

# Kinds.
RESULT = 0  # of the call: six words
PUSH = 1  # bytes of a send, to where the receiver has said: slot, where to, buffer, begin, bytes
TAKE = 2  # bytes of a receive from staging: slot, staging, buffer, begin, end
PUT_WIDE = 3  # a message into the wide slot: where to, buffer, bytes, number
TAKE_WIDE = 4  # a message from there: place, buffer, bytes to move, length, mark
COLLECT = 5  # a step of a long collective: word of the call, step and slot, buffer, begin, bytes
# A long collective at once (``pipelines.py``): word of the call, what goes out, where to, bytes,
# number of the opening and pipelines.
TRANSFER = 6
