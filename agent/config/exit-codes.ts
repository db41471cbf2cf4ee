/**
 * Exit codes that job scripts test for. There are also EXIT_DONE (drained on request, or because the job's time was
 * nearly over) and EXIT_USAGE.
 */

/** EX_UNAVAILABLE of sysexits.h: every gateway refused this agent, and trying again cannot help. */
export const EXIT_REFUSED = 69;
/** EX_SOFTWARE of sysexits.h: the engine ended unexpectedly, or the agent had a fault and drained. */
export const EXIT_ENGINE = 70;
/** 128 + SIGTERM, as a shell reports it: a signal ended the agent, after draining. */
export const EXIT_SIGNALLED = 143;
