/** One object of the file, by the names of its members. */
export type Entry = Readonly<Record<string, unknown>>;
