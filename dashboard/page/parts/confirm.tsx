import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Confirming {
  /** Whether the question is open. */
  isOpen: boolean;
  /** Of the button that asks; it has the focus again where the answer was no. */
  opener: RefObject<HTMLButtonElement | null>;
  ask: () => void;
  answer: (yes: boolean) => void;
}

/** A question before something that cannot be taken back. */
export function useConfirm(onYes: () => void): Confirming {
  const opener = useRef<HTMLButtonElement>(null);
  const wasKept = useRef(false);
  const [isOpen, setOpen] = useState(false);
  useLayoutEffect(() => {
    if (isOpen || !wasKept.current) return;
    wasKept.current = false;
    opener.current?.focus();
  }, [isOpen]);
  return {
    isOpen,
    opener,
    ask: () => setOpen(true),
    answer: (yes) => {
      wasKept.current = !yes;
      setOpen(false);
      if (yes) onYes();
    },
  };
}

interface ConfirmProps {
  confirming: Confirming;
  /** Names the question to who does not see it. */
  label: string;
  /** What it costs. */
  words: string;
  yes: string;
  no: string;
}

/** Nothing while it is not asked. Escape is no, which has the focus at first. */
export function Confirm({ confirming, label, words, yes, no }: ConfirmProps) {
  const keep = useRef<HTMLButtonElement>(null);
  const { isOpen, answer } = confirming;
  // Once it is there, before another key can be meant for it.
  useLayoutEffect(() => {
    if (isOpen) keep.current?.focus();
  }, [isOpen]);
  if (!isOpen) return null;
  return (
    <div
      class="confirm"
      role="group"
      aria-label={label}
      onKeyDown={(event) => {
        if (event.key === "Escape") answer(false);
      }}
    >
      <span class="small">{words}</span>
      <span class="row">
        <button type="button" class="button small danger" onClick={() => answer(true)}>
          {yes}
        </button>
        <button type="button" class="button small" ref={keep} onClick={() => answer(false)}>
          {no}
        </button>
      </span>
    </div>
  );
}
