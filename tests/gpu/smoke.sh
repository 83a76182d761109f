#!/bin/bash
# Is everything alive? Two ranks, every class of message.
cd "$(dirname "$0")/../.." && . tests/gpu/setup.sh
ranks 2 tests/gpu/smoke.py
