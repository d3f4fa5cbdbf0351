// Placeholder of the room until its first file stands.
#include "data/data.h"
