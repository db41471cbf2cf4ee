/** The command-line library of `otela-gateway`, `otela-agent`, `otela-plan`, `otela-factory` and `otela`. */

export {
  type Command,
  commandErrorMessage,
  EXIT_DONE,
  EXIT_SOFTWARE,
  EXIT_UNAVAILABLE,
  EXIT_USAGE,
  flagTable,
  helpText,
  type Program,
  readCommand,
} from './command-program.ts';
export { type AcceptedValues, type Flag, type Flags, JSON_FLAG, type ParsedFlags, parseLine } from './parse-flags.ts';
export { runProgram } from './run-program.ts';
export { UsageError } from './usage-error.ts';
