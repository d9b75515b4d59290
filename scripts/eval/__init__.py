"""What models and restorers recall and how exact families are."""
