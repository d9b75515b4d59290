/** Line icons of one hand: 16 by 16, a stroke of 1.5. */

const PATHS = {
  fleet:
    "M8 2.2v3.1M8 5.3 3.6 9.800M8 5.300l4.400 4.500M2 10h3.200v3.200H2zM10.800 10H14v3.200h-3.200zM6.400 1.900h3.200v3.200H6.400z",
  sessions: "M2 4.500h7M2 8h12M2 11.500h9M11.500 4.500H14M13.200 11.500h.8",
  plan: "M2.500 8h3.200c2.600 0 2-4.500 4.600-4.500h3M2.500 8h3.200c2.600 0 2 4.500 4.600 4.500h3M11.500 1.700l1.900 1.800-1.900 1.800M11.500 10.700l1.900 1.800-1.900 1.800",
  chat: "M2.500 3.500h11v7.500H8l-3 2.500V11H2.500zM5.200 6.200h5.600M5.200 8.400h3.400",
  models: "M8 1.900l5.300 3v6.200L8 14.100l-5.300-3V4.900zM2.700 4.900 8 8l5.300-3.100M8 8v6.100",
  events: "M8 1.900v1.300M4 11V7.400a4 4 0 0 1 8 0V11l1.300 1H2.700zM6.600 13.900h2.800",
  light:
    "M8 5.200a2.800 2.800 0 1 1 0 5.600 2.800 2.800 0 0 1 0-5.600zM8 1.500v1.300M8 13.200v1.300M1.500 8h1.300M13.200 8h1.300M3.400 3.400l.9.9M11.700 11.700l.9.9M3.400 12.600l.9-.9M11.700 4.300l.9-.9",
  dark: "M13.500 9.600A5.800 5.800 0 0 1 6.400 2.500a5.800 5.800 0 1 0 7.100 7.100z",
  system: "M2 3h12v8H2zM5.500 13.500h5M8 11v2.500",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  check: "M3 8.500l3.200 3.200L13 4.800",
  warning: "M8 2.300 14.300 13.300H1.700zM8 6.500v3M8 11.300v.2",
  info: "M8 1.900a6.100 6.100 0 1 1 0 12.200A6.100 6.100 0 0 1 8 1.900zM8 7.300v3.700M8 5v.2",
  error:
    "M5.400 1.900h5.200l3.500 3.500v5.200l-3.500 3.500H5.400l-3.500-3.500V5.400zM8 5v3.500M8 10.800v.2",
  mend: "M10.200 2.200a3.400 3.400 0 0 0-3 4.700L2.300 11.800l1.900 1.900 4.900-4.900a3.400 3.400 0 0 0 4.500-4.300L11.400 6.600 9.400 4.600l2-2.200a3.400 3.400 0 0 0-1.200-.2z",
  stop: "M4 4h8v8H4z",
  again: "M13.300 8a5.300 5.300 0 1 1-1.700-3.900M13.500 1.800v3h-3",
  send: "M8 13.500V2.800M3.700 7 8 2.700 12.300 7",
  arrow: "M3 8h10M9.300 4.300 13 8l-3.700 3.700",
  plus: "M8 3v10M3 8h10",
  cross: "M4 4l8 8M12 4l-8 8",
  edit: "M10.800 2.700l2.500 2.500-7.600 7.600-3.200.7.7-3.200zM9.300 4.200l2.500 2.500",
  settings: "M2 4.500h6.500M11.500 4.500H14M10 3v3M2 11.500h2.500M7.500 11.500H14M6 10v3",
  history: "M2.700 8a5.300 5.300 0 1 1 1.700 3.900M2.500 14.200v-3h3M8 5.200V8l2 1.500",
  trash: "M2.500 4.200h11M6 4V2.500h4V4M4 4.200l.7 9.300h6.600l.7-9.300",
  spark:
    "M8 1.800v3.400M8 10.800v3.400M1.800 8h3.400M10.800 8h3.400M4 4l1.900 1.900M10.100 10.100 12 12M4 12l1.900-1.900M10.100 5.900 12 4",
} as const;

export type IconName = keyof typeof PATHS;

/** Decoration: the words stand beside it, or on the control that holds it. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      class="icon"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      stroke-width="1.5"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The mark: needles that turn within a small area, as Kakeya asked. */
export function Mark({ size = 24 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
      <rect width="24" height="24" rx="6.500" fill="var(--accent-fill)" />
      <g fill="none" stroke="#fff" stroke-linecap="round">
        <path d="M6.2 17.600C11 14.800 14 11 17.800 5.600" stroke-width="2" />
        <path
          d="M5.800 8.200C10 10 14.500 13.500 18.200 17.800"
          stroke-width="1.500"
          opacity=".72"
        />
        <path d="M11.700 4.800c.3 4.500.3 9-.2 14.400" stroke-width="1.100" opacity=".5" />
      </g>
    </svg>
  );
}
