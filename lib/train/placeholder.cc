// Placeholder of the room until its first file stands.
#include "train/train.h"
