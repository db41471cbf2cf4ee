/** Messages for the owner of a batch. */

export const STEP_FAILED = 'The next step of the batch failed. The gateway tries again.';
export const CANCELLED_WITHOUT_FILES = 'The files of the batch could not be written to the file store.';
/** @param why the error, which the operator finds in the log */
export const stepGivenUp = (why: string) =>
  `The same step of the batch failed repeatedly, so the gateway ended the batch: ${why.slice(0, 200)}`;
export const ENGINE_ENDED = 'The engine of the node ended while it ran this line.';
export const ENGINES_ENDED =
  'Several lines of the batch each ended the engines of three nodes, so the gateway ended the batch.';
export const NO_TOKENS = 'The tokens of this month are used up: raise the budget, or wait for the next month.';
export const NO_GPU_TIME = 'The GPU-seconds of this month are used up: raise the limit, or wait for the next month.';
export const INPUT_LOST = {
  code: 'input_lost',
  message: 'The input file could not be read within the window.',
  param: 'file_id',
  line: null,
};
export const NO_INPUT = {
  code: 'invalid_request',
  message: 'The input file does not exist.',
  param: 'file_id',
  line: null,
};
