"""Language models as writers of candidates: prompt, answer, parse."""
