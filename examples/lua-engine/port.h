// Lua on a system without files, processes and signals; included before all of its source.

unsigned int engine_seed(void);
#define luai_makeseed(state) engine_seed()

#define l_signalT int
