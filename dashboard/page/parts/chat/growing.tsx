import { useLayoutEffect, useId, useRef } from "preact/hooks";

interface GrowingProps {
  label: string;
  value: string;
  placeholder?: string;
  takesFocus?: boolean;
  onInput: (text: string) => void;
  /** Enter without Shift, outside a composition. */
  onEnter: () => void;
  onEscape?: () => void;
  /** The up arrow in an empty field. */
  onUp?: () => void;
}

/** A field of as many lines as its text has, up to its largest height. */
export function Growing(props: GrowingProps) {
  const { label, value, placeholder = "", takesFocus = false } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const element = field.current;
    if (element === null) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [value]);
  // Before the next key is pressed: it is this field's.
  useLayoutEffect(() => {
    const element = field.current;
    if (!takesFocus || element === null) return;
    element.focus();
    element.setSelectionRange(element.value.length, element.value.length);
  }, [takesFocus]);
  const key = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      props.onEnter();
    } else if (event.key === "Escape" && props.onEscape !== undefined) {
      event.stopPropagation();
      props.onEscape();
    } else if (event.key === "ArrowUp" && value === "" && props.onUp !== undefined) {
      event.preventDefault();
      props.onUp();
    }
  };
  return (
    <>
      <label class="unseen" for={id}>
        {label}
      </label>
      <textarea
        id={id}
        ref={field}
        class="growing"
        rows={1}
        value={value}
        placeholder={placeholder}
        onInput={(event) => props.onInput(event.currentTarget.value)}
        onKeyDown={key}
      />
    </>
  );
}
