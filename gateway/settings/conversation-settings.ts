import * as z from 'zod';

/** MiB for the conversations that each person keeps at the gateway; 0: it keeps none. */
export const conversationsMibSchema = z.int().min(0).max(1_024);
