// Placeholder of the room until its first file stands.
#include "comm/comm.h"
