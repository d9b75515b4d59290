import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

import { connection } from "../state/fleet";

interface PageHeadProps {
  title: string;
  /** What the page belongs to, as a link before the title. */
  crumb?: { label: string; href: string };
  children?: ComponentChildren;
}

/** The view's heading; the document's title follows it. */
export function PageHead({ title, crumb, children }: PageHeadProps) {
  const fleet = connection.value.fleetName;
  useEffect(() => {
    const place = fleet === "" ? "Kakeya Fleet" : `${fleet} – Kakeya Fleet`;
    document.title = title === "Fleet" ? place : `${title} – ${place}`;
  }, [title, fleet]);
  return (
    <header class="page-head">
      {crumb !== undefined && (
        <nav class="crumbs" aria-label="Up">
          <a class="crumb" href={crumb.href}>
            {crumb.label}
          </a>
          <span aria-hidden="true">/</span>
        </nav>
      )}
      <h1>{title}</h1>
      {children}
    </header>
  );
}
