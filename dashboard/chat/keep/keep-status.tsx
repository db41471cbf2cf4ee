import { type ReactNode, useState } from 'react';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Confirm } from '../../ui/dialog.tsx';
import { messageOf } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import type { FilledFields } from '../../ui/form-values.ts';
import { WrongKeyError } from './box-cipher.ts';
import { type Keeper, type KeepState, useKeeping } from './use-keeping.ts';

const texts = t.chat.keep;

const PASSPHRASE_MIN_CHARS = 12;

/** Says whether conversations are kept at the gateway, below the list of conversations. */
export function KeepStatus({ person }: { person: string | undefined }) {
  // Browsers encrypt only on TLS and on localhost.
  const { state, keeper } = useKeeping(globalThis.isSecureContext ? person : undefined);
  const [asked, setAsked] = useState<'begin' | 'end'>();
  if (state === undefined || keeper === undefined) return null;
  const close = () => setAsked(undefined);
  return (
    <div className="shrink-0 border-line border-t px-4 py-2 text-muted text-xs">
      {state.state === 'off' ? (
        <Button size="small" onClick={() => setAsked('begin')}>
          {state.known ? texts.known : texts.button}
        </Button>
      ) : (
        <Kept state={state} end={() => setAsked('end')} />
      )}
      {asked === 'begin' && <BeginDialog keeper={keeper} known={state.state === 'off' && state.known} close={close} />}
      {asked === 'end' && (
        <Confirm title={texts.stopTitle} action={texts.stopAct} act={() => keeper.end(true)} close={close}>
          <p>{texts.stopFollows}</p>
          <p className="mt-3">
            <Button size="small" onClick={() => void keeper.end(false).then(close, close)}>
              {texts.stopHere}
            </Button>
          </p>
        </Confirm>
      )}
    </div>
  );
}

function Kept({ state, end }: { state: KeepState & { state: 'on' }; end: () => void }) {
  const { error, tooLarge } = state;
  const said = error === undefined ? texts.on : texts.failed(messageOf(error));
  return (
    <div className="flex items-center justify-between gap-2">
      <p role="status" className="min-w-0 [overflow-wrap:anywhere]">
        {said}
        {tooLarge > 0 && <span className="block">{texts.tooLarge(tooLarge)}</span>}
      </p>
      <Button size="small" onClick={end}>
        {texts.stop}
      </Button>
    </div>
  );
}

function BeginDialog({ keeper, known, close }: { keeper: Keeper; known: boolean; close: () => void }) {
  const submit = async (filled: FilledFields) => {
    const passphrase = filled.text('passphrase');
    if (!known && passphrase !== filled.text('again')) throw new Error(texts.differs);
    await keeper.begin(passphrase).catch((error: unknown) => {
      throw error instanceof WrongKeyError ? new Error(texts.wrong, { cause: error }) : error;
    });
  };
  const secret = (name: string, label: string, hint?: ReactNode) => (
    <Field label={label} hint={hint}>
      {(id) => (
        <Input
          id={id}
          name={name}
          type="password"
          autoComplete={known ? 'current-password' : 'new-password'}
          minLength={PASSPHRASE_MIN_CHARS}
          maxLength={1_000}
          required
        />
      )}
    </Field>
  );
  return (
    <FormDialog
      title={known ? texts.knownTitle : texts.title}
      action={known ? texts.get : texts.act}
      submit={submit}
      close={close}
      size="small"
    >
      <p className="sm:col-span-2">{known ? texts.knownAbout : texts.about}</p>
      {secret('passphrase', texts.passphrase, known ? undefined : texts.hint)}
      {!known && secret('again', texts.again)}
      {!known && <p className="text-muted text-sm sm:col-span-2">{texts.lose}</p>}
    </FormDialog>
  );
}
