/** The command-line kit of `otela-gateway`, `otela-agent`, `otela-plan` and whatever program comes next. */
export { UsageError } from './error.ts';
export { type Flag, type Flags, JSON_FLAG, parseLine, type Taken, type Values } from './flags.ts';
export {
  type Command,
  complaint,
  EXIT_DONE,
  EXIT_USAGE,
  flagTable,
  helpOf,
  type Program,
  readCommand,
} from './program.ts';
