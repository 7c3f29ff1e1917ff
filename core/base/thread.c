/*
 * thread.c - threads that do not meet signals: these are for the thread that waits for them, and a
 * SIGTERM that finds a helper thread without a handler would end the program on the spot.
 */
#include <signal.h>

#include "internal.h"

#define STACK_BYTES (512u << 10) /* decoders keep windows of some 10 KiB on the stack */

int rs_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t ours, before;
	pthread_t detached;

	/* Faults must stay deliverable: a blocked SIGBUS ends the program, guarded copy or not. */
	sigfillset(&ours);
	sigdelset(&ours, SIGBUS);
	sigdelset(&ours, SIGSEGV);
	sigdelset(&ours, SIGFPE);
	sigdelset(&ours, SIGILL);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (!thread)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &ours, &before);
	int failed = pthread_create(thread ? thread : &detached, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return failed;
}
