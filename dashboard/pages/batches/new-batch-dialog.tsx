import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { useLocation } from 'wouter';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { type Batch, type BatchFile, createBatch } from '../../api/batches.ts';
import { uploadFile } from '../../api/upload.ts';
import { bytes } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Field, Input, Select } from '../../ui/field.tsx';
import { WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import type { FilledFields } from '../../ui/form-values.ts';
import { Meter } from '../../ui/meter.tsx';
import { FIRST_LINE_ENDPOINTS, firstLineOf } from './first-line.ts';

const texts = t.batches.form;

/** A local file, or one that the gateway has. */
export type NewBatchInput = { kind: 'local'; file: File } | { kind: 'stored'; file: BatchFile };

interface NewBatchDialogProps {
  input: NewBatchInput;
  close: () => void;
}

/** Uploads a local file, then begins the batch and shows it. Closing the dialog stops the upload. */
export function NewBatchDialog({ input, close }: NewBatchDialogProps) {
  const [, navigate] = useLocation();
  const queries = useQueryClient();
  const [endpoint, setEndpoint] = useState<Batch['endpoint']>('/v1/chat/completions');
  const [sent, setSent] = useState<number>();
  const leaving = useRef(new AbortController());
  const name = input.kind === 'local' ? input.file.name : input.file.filename;
  const size = input.kind === 'local' ? input.file.size : input.file.bytes;
  useEffect(() => {
    const controller = new AbortController();
    leaving.current = controller;
    return () => controller.abort();
  }, []);
  useEffect(() => {
    let isGone = false;
    if (input.kind === 'local')
      firstLineOf(input.file).then(
        (first) => {
          if (!isGone && first !== undefined) setEndpoint(first.endpoint);
        },
        () => {}, // the upload reports that the file cannot be read
      );
    return () => {
      isGone = true;
    };
  }, [input]);
  const submit = async (filled: FilledFields) => {
    const { signal } = leaving.current;
    if (size === 0) throw new Error(texts.empty);
    const file =
      input.kind === 'stored'
        ? input.file.id
        : await uploadFile(input.file, { purpose: 'batch', onProgress: setSent, signal }).finally(() => {
            setSent(undefined);
            neverRejects(queries.invalidateQueries({ queryKey: ['files'] }));
          });
    const batch = await createBatch(file, endpoint, filled.text('name'));
    if (!signal.aborted) navigate(`/batches/${batch.id}`);
  };
  return (
    <FormDialog title={texts.title} action={texts.start} submit={submit} close={close}>
      <Field label={texts.file} className={WIDE}>
        {(id) => <Input id={id} readOnly value={`${name}, ${bytes(size)}`} />}
      </Field>
      <Field label={texts.name} hint={texts.nameHint}>
        {(id) => <Input id={id} name="name" maxLength={200} defaultValue={name.replace(/\.\w+$/, '')} />}
      </Field>
      <Field label={texts.endpoint}>
        {(id) => (
          <Select
            id={id}
            value={endpoint}
            onChange={({ currentTarget: { value } }) =>
              setEndpoint(FIRST_LINE_ENDPOINTS.find((one) => one === value) ?? endpoint)
            }
          >
            {FIRST_LINE_ENDPOINTS.map((one) => (
              <option key={one} value={one}>
                {texts.endpoints[one]}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {sent !== undefined && (
        <div className={WIDE} role="status">
          <Meter label={texts.sending} value={sent} max={size} text={texts.sent(bytes(sent), bytes(size))} plain />
        </div>
      )}
    </FormDialog>
  );
}
