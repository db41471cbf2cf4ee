import { type FormEvent, useState } from 'react';
import { gateway } from '../../api/client.ts';
import { OwnProject } from '../../parts/own-project.tsx';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Failure } from '../../ui/feedback.tsx';
import { Field, Input } from '../../ui/field.tsx';
import { Page } from '../../ui/page.tsx';
import { useAction } from '../../ui/use-action.ts';

const texts = t.keys.device;

/** `otela login` on another machine shows a code; who enters it here gives that machine a key of theirs. */
export function DeviceLogin({ code, close }: { code: string; close: () => void }) {
  const { login } = useMe();
  const [done, setDone] = useState<'approved' | 'denied'>();
  const answer = useAction((approved: boolean) => setDone(approved ? 'approved' : 'denied'));
  const say = (form: HTMLFormElement, approve: boolean) => {
    const filled = new FormData(form);
    const project = String(filled.get('project') ?? '');
    const body = {
      user_code: String(filled.get('code') ?? ''),
      approve,
      ...(project !== '' && { project_id: project }),
    };
    answer.act(gateway.POST('/admin/device-logins', { body }).then(() => approve));
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const by = (event.nativeEvent as SubmitEvent).submitter;
    say(event.currentTarget, by?.getAttribute('value') !== 'deny');
  };
  return (
    <Page title={texts.title} about={texts.about}>
      {done === undefined ? (
        <form onSubmit={submit} className="flex max-w-sm flex-col gap-4">
          <Field label={texts.code} hint={texts.codeHint}>
            {(id) => (
              <Input
                id={id}
                name="code"
                required
                maxLength={32}
                autoComplete="off"
                spellCheck={false}
                defaultValue={code}
              />
            )}
          </Field>
          {login && <OwnProject label={t.keys.form.project} />}
          <p className="text-pretty text-muted">{texts.warning}</p>
          <div className="flex gap-3">
            <Button type="submit" kind="primary" disabled={answer.busy}>
              {texts.approve}
            </Button>
            <Button type="submit" value="deny" disabled={answer.busy}>
              {texts.deny}
            </Button>
          </div>
          {answer.error !== undefined && <Failure error={answer.error} />}
        </form>
      ) : (
        <div className="flex max-w-sm flex-col items-start gap-4">
          <p>{done === 'approved' ? texts.approved : texts.denied}</p>
          <Button onClick={close}>{t.pages.keys}</Button>
        </div>
      )}
    </Page>
  );
}
