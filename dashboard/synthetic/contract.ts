/** The generated contract, as the synthetic nodes serve it. */
export * from "@kakeya/runtime/contract";
