/** Messages for the owner of a batch. */

export const STEP_FAILED = 'This gateway could not do its next step, and tries again.';
export const CANCELLED_WITHOUT_FILES = 'Its files could not be written: the file store did not take them.';
/** @param why the error, which the operator finds in the log */
export const stepGivenUp = (why: string) =>
  `This gateway failed at the same step of the batch again and again, and gave it up: ${why.slice(0, 200)}`;
export const NO_TOKENS = 'The tokens of this month are used up: raise the budget, or wait for the next month.';
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
