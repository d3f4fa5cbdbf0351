// Placeholder of the room until its first file stands.
#include "checkpoint/checkpoint.h"
