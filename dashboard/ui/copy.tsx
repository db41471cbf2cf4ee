import { useEffect, useState } from 'react';
import { t } from '../texts/index.ts';
import { Button, IconButton } from './button.tsx';
import { Check, Copy as CopyIcon } from './icons.ts';

/** How long “Copied” is shown. */
const COPIED_SHOWN_MS = 1500;

/**
 * Browsers offer a clipboard only on TLS and on localhost. Without it there is no button, because it would do nothing.
 */
const canCopy = (): boolean => navigator.clipboard !== undefined;

interface CopyProps {
  text: string | (() => string);
  label?: string;
  /** True if the button has only an icon. */
  icon?: boolean;
}

export function Copy({ text, label = t.common.copy, icon = false }: CopyProps) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), COPIED_SHOWN_MS);
    return () => clearTimeout(timer);
  }, [done]);
  if (!canCopy()) return null;
  const copy = () => {
    navigator.clipboard.writeText(typeof text === 'string' ? text : text()).then(
      () => setDone(true),
      () => {}, // the browser forbids it: the button does not say "copied"
    );
  };
  const Icon = done ? Check : CopyIcon;
  if (icon)
    return (
      <IconButton label={done ? t.common.copied : label} onClick={copy}>
        <Icon />
      </IconButton>
    );
  return (
    <Button size="small" onClick={copy}>
      <Icon className="size-3.5" aria-hidden />
      {done ? t.common.copied : label}
    </Button>
  );
}

interface SecretProps {
  title: string;
  secret: string;
  /** A command with the secret, and its purpose. */
  command?: { label: string; text: string };
  close: () => void;
}

/** A secret that is shown only this once. */
export function Secret({ title, secret, command, close }: SecretProps) {
  return (
    <section className="flex flex-col gap-3 rounded-lg border border-accent bg-accent-soft p-4" aria-label={title}>
      <p>
        <strong>{title}</strong> {t.common.shownOnce}
      </p>
      <code className="secret rounded-md bg-surface px-3 py-2 [overflow-wrap:anywhere]">{secret}</code>
      <p className="flex gap-2">
        <Copy text={secret} />
        <Button size="small" onClick={close}>
          {t.common.done}
        </Button>
      </p>
      {command && (
        <>
          <p>{command.label}</p>
          <code className="command rounded-md bg-surface px-3 py-2 [overflow-wrap:anywhere]">{command.text}</code>
          <p>
            <Copy text={command.text} />
          </p>
        </>
      )}
    </section>
  );
}
