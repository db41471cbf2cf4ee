/**
 * Merges a conversation that two tabs changed. Pure, and without the page's own types, so that it can be tested
 * separately.
 */

interface Side<Turn> {
  model: string;
  turns: Readonly<Record<string, Turn>>;
  chosen: Readonly<Record<string, string>>;
}

interface Told<Turn, Settings> {
  id: string;
  title: string;
  titled?: true;
  createdAt: number;
  updatedAt: number;
  settings: Settings;
  threads: readonly Side<Turn>[];
}

/**
 * The version of another tab, with all changes of this tab since `base`. Objects are never changed in place, so an
 * object that is the same in `base` and `ours` was not changed here.
 */
export function merged<Turn, Settings>(
  base: Told<Turn, Settings>,
  ours: Told<Turn, Settings>,
  stored: Told<Turn, Settings>,
): Told<Turn, Settings> {
  const { title, titled } = ours.title === base.title && ours.titled === base.titled ? stored : ours;
  // If this tab added a thread, or kept one of two, its threads are used.
  const { threads } = ours.threads.length === base.threads.length ? stored : ours;
  const counterpart = (list: readonly Side<Turn>[], { model }: Side<Turn>, n: number): Side<Turn> =>
    (list.length === threads.length ? list[n] : list.find((one) => one.model === model)) ?? {
      model,
      turns: {},
      chosen: {},
    };
  return {
    ...stored,
    title,
    ...(titled === undefined ? {} : { titled }),
    updatedAt: ours.updatedAt,
    settings: ours.settings === base.settings ? stored.settings : ours.settings,
    threads: threads.map((thread, n) =>
      mergedSide(
        counterpart(base.threads, thread, n),
        counterpart(ours.threads, thread, n),
        counterpart(stored.threads, thread, n),
      ),
    ),
  };
}

function mergedSide<Turn>(base: Side<Turn>, ours: Side<Turn>, stored: Side<Turn>): Side<Turn> {
  return {
    model: ours.model === base.model ? stored.model : ours.model,
    turns: { ...stored.turns, ...changedIn(base.turns, ours.turns) },
    chosen: { ...stored.chosen, ...changedIn(base.chosen, ours.chosen) },
  };
}

function changedIn<T>(base: Readonly<Record<string, T>>, ours: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(ours).filter(([key, value]) => value !== base[key]));
}
