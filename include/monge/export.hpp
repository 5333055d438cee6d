// MONGE_API marks what libmonge.so exports. All its other symbols are hidden.
#pragma once

#define MONGE_API [[gnu::visibility("default")]]
