// Placeholder of the room until its first file stands.
#include "model/model.h"
